"""Servers, connections and channels: what carries frames over sockets, or over memory in simulations."""

"""The living part of a broker: it joins the log, the tables and the network. See docs/contributing for the way through."""

"""Finds out who sends a request, and whether they may, at the ports of brokers and of nameservers. Rules are in rmq.access.

Nodes prove that they are nodes by the cluster's secret (`guard`), and which node they are by their certificate (`members`).
"""

"""Who asks, and whether they may: the same at the ports of brokers and of nameservers. Rules are rmq.access's.

Nodes prove that they are nodes by the cluster's secret (`guard`), and which node they are by their certificate (`members`).
"""

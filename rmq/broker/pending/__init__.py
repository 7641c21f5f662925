"""Messages that wait inside a broker: for their time, for the end of a transaction, for an acknowledgement."""

"""Spark over the segment files: a data source, the daily report, and how Java is found.

Needs the extra `spark` (`pip install 'rmq[spark]'`). The broker knows nothing of this package and does nothing for it.
"""

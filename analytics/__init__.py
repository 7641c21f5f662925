"""Spark over the segment files: a data source, the daily report, and the search for Java.

Needs the extra `spark` (`pip install 'rmq[spark]'`). The broker knows nothing of this package and does nothing for it.
"""

"""Files below the log: the disk port, segments, small files, snapshots, damage."""

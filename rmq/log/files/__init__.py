"""What lies on the disk below the log: the disk port, segments, small files, snapshots, damage."""

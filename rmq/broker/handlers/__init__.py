"""What a broker answers: one file per subject. No handler knows another."""

"""What commands share: how they reach a cluster, their options, what they print, how they end."""

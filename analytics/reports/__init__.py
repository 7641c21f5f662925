"""`rmq report`: what is counted of each day, and the page that tells it."""

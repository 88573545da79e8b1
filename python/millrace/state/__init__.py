"""What lasts from run to run: variables, their initial values, queues."""

import signal

# What a process ignores, its children ignore too: where the tests run with Ctrl-C ignored (nohup, a
# script's background job), the programs that they start are to see it all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)

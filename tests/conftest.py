"""What every test starts from."""

import signal

# A suite started in the background of a shell without job control inherits an ignored SIGINT, and so would the runs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

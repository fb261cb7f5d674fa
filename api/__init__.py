"""Every way in: the command line now, REST service and web page beside it. May import every floor below."""

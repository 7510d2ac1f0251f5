"""The sealed link with sockets and clocks: endpoints, datagrams, the inbox, keys of peers."""

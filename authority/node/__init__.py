"""What both kinds of servers share: configuration, spans, breakpoints, plug-ins."""

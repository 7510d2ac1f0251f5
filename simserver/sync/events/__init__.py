"""The server of event streams: it owns the time and the order of events, and knows nothing else of a game.

Pure: the time, the names and everything random come in as arguments. The rules, URLs, fields and codes are in
docs/reference/event-stream.md; they are those of GoEventStream (seed document: event stream) where this page does not
differ.

    limits       every bound, settable
    refusals     what is refused, with a stable code and an HTTP status
    messages     a request and a reply, as values
    log          the events of one stream, found by tick
    clients      who is connected, since when silent, with which public id
    votes        hashes of states that clients report, and the first tick at which they differ
    snapshots    a state that a quorum of clients had, for those who come late
    stream       the stream machine: `advance`, `apply`, `reply_for`, and its plain data; start here
    json_form    paths and bodies to requests, replies to JSON
    polled       many streams by name, on a monotonic clock
"""

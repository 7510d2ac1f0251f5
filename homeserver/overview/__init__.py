"""What people look at: the map of an instance, its lists, what happens now, and the dashboard that shows all of it.

`cluster_map`  servers, members and other instances, each with its health and the reason
`lists`        entities and transfers, in pages
`live`         what happens, read from the log once for all who look on
`acts`         what operators have done, and what was done through the dashboard
`routes`       the REST routes of these
`page`         the dashboard's own files; `page/dashboard.js` is where to begin

Nothing here changes anything: what the page does is done by the routes of `homeserver.rest`. docs/guides/dashboard.md
is about the page.
"""

"""Lockstep games in browsers: files that a server hands out as they are, and the twin of their example.

    events.js      the whole client as one ES module, with the hashes of `lockstep`, tick for tick; start here
    fireflies.js   an example, a game for two
    fireflies      the same in Python, hash for hash
    game.html      the page of it, with `game.css` and `page.js`
    pages          all of these by path, for a server

docs/guides/lockstep-browser.md says how a page of yours uses the module.
"""

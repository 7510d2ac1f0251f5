"""The documentation as a site that needs no other host: `python -m tests.docs.site`, or `make site`.

    staged        the pages as Sphinx reads them, with a table of contents and what directories hold
    references    pages made from the code: the API from docstrings, the commands, the REST API from its document
    docstrings    what stands in docstrings, in the form that Sphinx's autodoc reads
    conf          the settings of Sphinx

Why Sphinx: docs/decisions/0013-documentation-site.md.
"""

"""The report: every verdict of a store on one self-contained HTML page, readable without network and script.

`records` reads the store, `drawings` makes its figures safe, `words` writes numbers for people, `page` puts them
together; the page itself is `page.html.j2` with `page.css`, `early.js` and `page.js`.
"""

from sandtable.lab.report.drawings import clean_svg
from sandtable.lab.report.page import write_report
from sandtable.lab.report.words import show, strip

__all__ = ["clean_svg", "show", "strip", "write_report"]

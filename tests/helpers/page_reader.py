"""Reads an HTML page as a browser does."""

from html.parser import HTMLParser

VOID = {"meta", "rect", "input", "line", "circle"}


class Reader(HTMLParser):
    """What a browser makes of a page: tags with attributes, forms with their fields, and text.

    A tag that is not closed in order is an error.
    """

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts, self.style, self.forms = [], [], [], "", {}
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.tags.append((tag, named))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "form":
            self.form = self.forms.setdefault(named["action"].removeprefix("."), {})  # all pages lie beside each other
        if tag == "input":
            self.form[named["name"]] = named.get("value", "")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        elif self.open:
            self.texts.append((self.open[-1], data))

    @property
    def text(self):
        return " ".join(" ".join(data.split()) for _, data in self.texts if data.strip())

    def all(self, *tags):
        return [named for tag, named in self.tags if tag in tags]

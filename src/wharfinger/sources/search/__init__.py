"""The search index over the text of all sources: see `search_index`."""

from wharfinger.sources.search.index import SearchIndex, search_index

__all__ = ["SearchIndex", "search_index"]

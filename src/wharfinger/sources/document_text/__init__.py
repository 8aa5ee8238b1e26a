"""The text of PDF, DOCX, PPTX and EPUB files, by page, parsed in processes of their own (extra `documents`)."""

"""One file a layout: `LOOKS_FOR` names its files, `read(folder, scratch)` gives the package, or None for a folder that is none."""

//! What ships: pure rules over the list of a directory's entries.

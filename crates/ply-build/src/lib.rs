//! From a directory to an image: detection, what ships, resolution, lock, pack

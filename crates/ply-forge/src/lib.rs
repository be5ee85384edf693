//! Making packages: Debian packages to kegs and bases, recipes to a registry

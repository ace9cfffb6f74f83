// The object that owns the precompiled header; it has no code of its own.

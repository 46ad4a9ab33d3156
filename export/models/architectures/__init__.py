"""An architecture is the file of its name (general.architecture) here.

It has one function, `read_config(keys: Keys) -> DecoderConfig`, which says what its decoders are
beside plain ones. Sources: src/models/*.cpp of llama.cpp, by which the tests check each.
"""

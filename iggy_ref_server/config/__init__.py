"""The configuration: keys, sources, rules, and the resulting ``ServerConfig``.

    load_config(flags, environment, working_directory) -> LoadedConfig
    dump_config(config, addresses) -> str

The environment and the working directory are passed in, so tests need no process. Every other part
of the server may read ``ServerConfig``.
"""

"""The commands and Python modules of HTCondor, as thin translations onto the client.

They are visible only to those who ask for them: `eval "$(poolnode compat)"` puts the drop-ins in front of PATH and the
look-alike modules on PYTHONPATH, and `poolnode compat --install DIR` keeps them in a directory.

    tools       which drop-in is which module; a new one is a row there
    entry       the first lines of a drop-in: finds its module, turns each failure into one line
    options     HTCondor's options: one dash, abbreviations, `-af:jh`; an unknown one is refused
    print_mask  `-format` and `-autoformat`, byte for byte; c_printf is C's printf for one value
    ad_forms    `-long`, `-json`, `-xml`
    install     the directory with the drop-ins
    bindings    the look-alike modules

Formats follow HTCondor 25.14; its own condor_q, condor_status and condor_history printed the corpus of
`tests/compat/corpus`.
"""

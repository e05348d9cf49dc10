"""The command explains itself."""


def test_help_exits_with_success(cairn):
    cairn.run("--help")

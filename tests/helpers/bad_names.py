"""Names of the fuzz list (reliability 7.2), and what a refusal says of them."""

BAD_NAMES = {
    "empty": ("", "is empty"),
    "dot": (".", "'.'"),
    "dots": ("..", "'..'"),
    "slash": ("a/b", "ASCII"),
    "parent": ("../x", "ASCII"),
    "path": ("/etc/passwd", "ASCII"),
    "nul": ("a\x00b", "ASCII"),
    "newline": ("a\n", "ASCII"),
    "250": ("x" * 250, "at most 249"),
    "megabyte": ("x" * 1_000_000, "1000000 characters; at most 249"),
    "cyrillic": ("тема", "ASCII"),
    "bidi": ("a\u202eb", "ASCII"),
    "percent": ("%2e%2e", "ASCII"),
    "trailing space": ("a ", "ASCII"),
    "leading space": (" a", "ASCII"),
}
ODD_NAMES = ("...", "CON", "y" * 249, "a.b", "a_b", "---", "_-.", "t-0", "t-0-delete", "x.log")
"""Strange and valid: file names, znode names and metric labels are made of them."""

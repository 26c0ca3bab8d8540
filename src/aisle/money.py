"""Money as people read it. Everywhere else it is a whole number of minor units with its currency."""

# ISO 4217: how many minor digits a currency has, where it is not two.
_NO_MINOR = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_THREE = "BHD IQD JOD KWD LYD OMR TND"
DIGITS = {**dict.fromkeys(_NO_MINOR.split(), 0), **dict.fromkeys(_THREE.split(), 3)}


def format_money(minor: int, currency: str) -> str:
    """1234567 EUR -> `12,345.67 EUR`."""
    digits = DIGITS.get(currency, 2)
    whole, rest = divmod(abs(minor), 10**digits)
    fraction = f".{rest:0{digits}d}" if digits else ""
    return f"{'-' if minor < 0 else ''}{whole:,}{fraction} {currency}"

"""The names of the stocks that are quoted."""

from __future__ import annotations

_NAMES = """
IBM AAPL MSFT AMZN GOOG META NVDA TSLA ORCL INTC AMD CSCO ADBE CRM NFLX QCOM TXN AVGO MU AMAT
LRCX KLAC ADI NXPI MRVL HPQ HPE DELL WDC STX JPM BAC WFC C GS MS BK STT PNC USB
TFC COF AXP V MA PYPL BLK SCHW SPGI MCO ICE CME NDAQ AON MMC TRV ALL PGR CB AIG
MET PRU AFL HIG JNJ PFE MRK ABBV LLY BMY AMGN GILD BIIB REGN VRTX MRNA ABT MDT SYK BSX
BDX ZBH EW ISRG TMO DHR A WAT PKI UNH CVS CI HUM CNC HCA MCK XOM CVX COP EOG
OXY SLB HAL BKR VLO MPC PSX HES DVN APA KMI WMB OKE NEE DUK SO D AEP EXC SRE
XEL ED PEG ES WEC AWK LIN APD SHW ECL DD DOW LYB NUE FCX NEM GE HON MMM CAT
DE EMR ETN ITW PH ROK CMI PCAR BA LMT RTX NOC GD LHX UPS FDX UNP CSX NSC DAL
UAL AAL LUV WM RSG KO PEP PG CL KMB GIS K HSY MDLZ MO PM WMT COST TGT KR
HD LOW MCD SBUX YUM NKE TJX ROST BKNG MAR HLT GM F DIS CMCSA T VZ TMUS EA TTWO
"""
_LISTED = _NAMES.split()


def tickers(count: int) -> tuple[str, ...]:
    """The first names; past the listed ones come further share classes: IBM.B, AAPL.B, …"""
    return tuple(_ticker(number) for number in range(count))


def _ticker(number: int) -> str:
    again, place = divmod(number, len(_LISTED))
    return _LISTED[place] if again == 0 else f"{_LISTED[place]}.{chr(ord('A') + again)}"

"""Take the pictures of a report that the pages show: desk, dark and phone, by a headless Chromium.

``python docs/_ext/screenshots.py`` writes them to ``docs/howto/``; look at them before they are kept.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SHOTS = {
    "report_desk": (1100, (0, 1290), ()),
    "report_dark": (1100, (1400, 2370), ("--blink-settings=preferredColorScheme=0",)),
    "report_phone": (390, (1360, 2620), ()),
}
"""Name of the picture → width of the window, from where to where on the page, further words for the browser."""
QUIET = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


def main() -> int:
    """Factor the hospitals of the gallery, and take pictures of the page."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("No Chromium was found (apt-get install chromium).")
        return 2
    from PIL import Image  # comes with matplotlib

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hospitals = runpy.run_path(str(ROOT / "examples" / "plot_hospital_labs.py"))["hospitals"]
        for owner, frame in hospitals.items():
            frame.round(2).rename_axis("patient_id").to_csv(folder / f"{owner}.csv")
        fit = [sys.executable, "-m", "fedfactor", "fit", *(f"{owner}.csv" for owner in hospitals), "-k", "4"]
        subprocess.run([*fit, "--scale", "rms", "--seed", "0", "-o", "out"], cwd=folder, check=True)
        for shot, (width, (top, bottom), words) in SHOTS.items():
            page, raw = (folder / "out" / "report.html").as_uri(), folder / f"{shot}.png"
            look = [browser, *QUIET, *words, "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}"]
            look += [f"--window-size={width},{bottom}", f"--screenshot={raw}", page]
            subprocess.run(look, check=True, capture_output=True)
            part = Image.open(raw).convert("RGB").crop((0, top, width, bottom))
            # Flat colours: a palette holds them all.
            part.quantize(64).save(ROOT / "docs" / "howto" / f"{shot}.png", optimize=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

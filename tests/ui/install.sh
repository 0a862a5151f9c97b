#!/usr/bin/env bash
# Brings what drives a browser, the rules of accessibility, and a browser where there is none. A second run does nothing.
# Usage: install.sh FOLDER. The browser is $PREFIXGATE_BROWSER, else the system's Chromium, else Debian's package, which
# is unpacked into the folder with the libraries that it lacks: nothing is installed into the system.
set -euo pipefail

FOLDER=$1
PYTHON=${PYTHON:-python3}
DRIVER=(playwright==1.65.2 greenlet==3.5.6 pyee==13.0.1 typing_extensions==4.16.0)
RULES=axe-playwright-python==0.1.8  # carries axe-core 4.12.1
NAMES=(chromium chromium-browser google-chrome google-chrome-stable)

fail() {
    echo "make ui-test needs a browser: $1" >&2
    exit 1
}

found() {
    for name in "${NAMES[@]}"; do
        command -v "$name" && return
    done
    return 1
}

unpack() {  # into $FOLDER/debian: the package, what it depends on and is not here, and fonts that look like a desktop's
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        fail "install Chromium, or name one in PREFIXGATE_BROWSER"
    local wanted
    missing() {  # the packages that would be installed
        apt-get --simulate --no-install-recommends install chromium fonts-inter fonts-jetbrains-mono 2>/dev/null |
            awk '/^Inst /{print $2}'
    }
    wanted=$(missing || true)
    if test -z "$wanted"; then  # images come without the lists of packages
        apt-get update --quiet --quiet >/dev/null 2>&1 || true
        wanted=$(missing || true)
    fi
    test -n "$wanted" || fail "apt-get knows no package chromium; name a browser in PREFIXGATE_BROWSER"
    mkdir -p "$FOLDER/packages" "$FOLDER/debian"
    (cd "$FOLDER/packages" && apt-get download --quiet --quiet $wanted 2>/dev/null) || fail "apt-get cannot fetch Chromium"
    for package in "$FOLDER"/packages/*.deb; do
        dpkg-deb --extract "$package" "$FOLDER/debian"
    done
    rm -rf "$FOLDER/packages"
    test -x "$FOLDER/debian/usr/lib/chromium/chromium" || fail "the package chromium has no program"
}

wrap() {  # a program that finds the unpacked libraries and fonts
    local libraries
    libraries="$FOLDER/debian/usr/lib/$(uname -m)-linux-gnu"
    cat > "$FOLDER/fonts.conf" <<FONTS
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>$FOLDER/debian/usr/share/fonts</dir><dir>/usr/share/fonts</dir><cachedir>$FOLDER/fontcache</cachedir>
  <alias binding="strong"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="strong"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="strong"><family>monospace</family><prefer><family>JetBrains Mono</family></prefer></alias>
</fontconfig>
FONTS
    cat > "$FOLDER/browser" <<WRAPPER
#!/bin/sh
export LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio:\$LD_LIBRARY_PATH"
export FONTCONFIG_FILE="$FOLDER/fonts.conf"
exec "$FOLDER/debian/usr/lib/chromium/chromium" "\$@"
WRAPPER
    chmod +x "$FOLDER/browser"
}

if test -e "$FOLDER/installed" && test -x "$FOLDER/browser"; then
    exit 0
fi
rm -rf "$FOLDER"
mkdir -p "$FOLDER"
FOLDER=$(cd "$FOLDER" && pwd)
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target "$FOLDER/lib" "${DRIVER[@]}" "$RULES"
if test -n "${PREFIXGATE_BROWSER:-}"; then
    program=$(command -v "$PREFIXGATE_BROWSER") || fail "there is no program $PREFIXGATE_BROWSER"
    ln -s "$program" "$FOLDER/browser"
elif program=$(found); then
    ln -s "$program" "$FOLDER/browser"
else
    unpack
    wrap
fi
"$FOLDER/browser" --version > "$FOLDER/version" || fail "$FOLDER/browser does not start"
touch "$FOLDER/installed"

"""Whether the gateway of this container answers: exit 0, or 1 with the reason. HEALTH_URL is asked, else port 8080.

`/health` is 200 as long as the process works, also in a reduced way; `/ready` tells who may be sent requests.
"""

import os
import sys
import urllib.request

URL = os.environ.get("HEALTH_URL", "http://127.0.0.1:8080/health")
# No proxy of the environment: it would be asked for this container's own port.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

try:
    with OPENER.open(URL, timeout=4) as answer:
        answer.read()
except OSError as error:
    sys.exit(f"{URL}: {error}")

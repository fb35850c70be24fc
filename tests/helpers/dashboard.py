"""Checks alert rules and a dashboard against a Prometheus that scrapes a mount.

Usage: dashboard.py PROMETHEUS-URL METRICS-TEXT RULES DASHBOARD

Every metric in the rules and the dashboard is in the text of a mount, or belongs to remote memory
only. The server accepts every expression of the dashboard, and expressions for metrics of every
mount have a value. No two panels overlap.
"""

import json
import re
import sys
import urllib.parse
import urllib.request

url, text, rules, dashboard = sys.argv[1:]
problems = []


def ask(expression):
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        problems.append(f"{expression}: {error.read().decode(errors='replace')}")
        return None


shown = set(re.findall(r"^(steadfast_\w+)", open(text).read(), re.M))
panels = json.load(open(dashboard))["panels"]
expressions = [target["expr"] for panel in panels for target in panel["targets"]]
for name in sorted(set(re.findall(r"\bsteadfast_\w+",
                                  "\n".join(expressions) + open(rules).read()))):
    if name not in shown and not name.startswith("steadfast_remote_"):
        problems.append(f"{name}: no mount shows it")
for expression in expressions:
    asked = expression.replace("$instance", ".*").replace("$__rate_interval", "5s")
    result = ask(asked)
    if result == []:
        problems.append(f"{asked}: no figure")
cells = {}
for panel in panels:
    place = panel["gridPos"]
    if place["x"] + place["w"] > 24:
        problems.append(f"{panel['title']}: wider than the page")
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            other = cells.setdefault((x, y), panel["title"])
            if other != panel["title"]:
                problems.append(f"{panel['title']} lies on {other}")
if problems:
    sys.exit("\n".join(dict.fromkeys(problems)))
print(f"{len(expressions)} expressions of {len(panels)} panels")

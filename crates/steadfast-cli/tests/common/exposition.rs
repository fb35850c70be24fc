//! A strict reader of Prometheus text, version 0.0.4. It refuses text that a scrape would refuse or
//! that a linter would complain about.
#![allow(dead_code)]

use std::collections::{BTreeMap, HashSet};

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// A whole page.
#[derive(Debug, Default)]
pub struct Page {
    samples: Vec<Sample>,
}

impl Page {
    pub fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let matches = |sample: &&Sample| {
            sample.labels.len() == labels.len()
                && labels.iter().all(|(name, value)| {
                    sample.labels.iter().any(|label| label.0 == *name && label.1 == *value)
                })
        };
        self.samples(name).find(matches).map(|sample| sample.value)
    }
}

struct Family {
    name: String,
    kind: Option<String>,
}

pub fn parse(text: &str) -> Result<Page, String> {
    if !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    let mut page = Page::default();
    let mut seen = HashSet::new();
    let mut identities = HashSet::new();
    let mut family: Option<Family> = None;
    for line in text.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap_or_default().to_owned();
            if !seen.insert(name.clone()) {
                return wrong("a family twice");
            }
            if rest.len() <= name.len() + 1 {
                return wrong("no help");
            }
            family = Some(Family { name, kind: None });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or(format!("no type: {line}"))?;
            let Some(family) = family.as_mut().filter(|family| family.name == name) else {
                return wrong("TYPE without HELP");
            };
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return wrong("unknown type");
            }
            if (kind == "counter") != name.ends_with("_total") {
                return wrong("counters, and only they, end in _total");
            }
            family.kind = Some(kind.to_owned());
        } else {
            let sample = sample(line)?;
            let Some((family, kind)) = family.as_ref().and_then(|f| Some((f, f.kind.as_deref()?)))
            else {
                return wrong("a sample without TYPE");
            };
            let suffixes: &[&str] =
                if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            if !suffixes.iter().any(|suffix| sample.name == format!("{}{suffix}", family.name)) {
                return wrong("a sample of another family");
            }
            if !identities.insert(format!("{} {:?}", sample.name, sample.labels)) {
                return wrong("a sample twice");
            }
            if kind == "counter" && sample.value < 0.0 {
                return wrong("a counter below zero");
            }
            page.samples.push(sample);
        }
    }
    check_histograms(&page)?;
    Ok(page)
}

fn sample(line: &str) -> Result<Sample, String> {
    let wrong = || format!("no sample: {line}");
    let (head, value) = line.rsplit_once(' ').ok_or_else(wrong)?;
    let value = value.parse().map_err(|_| wrong())?;
    let (name, labels) = match head.split_once('{') {
        Some((name, rest)) => {
            (name, labels(rest.strip_suffix('}').ok_or_else(wrong)?).ok_or_else(wrong)?)
        }
        None => (head, Vec::new()),
    };
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    if name.is_empty() || !name.chars().all(good) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(wrong());
    }
    Ok(Sample { name: name.to_owned(), labels, value })
}

fn labels(text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, tail) = rest.split_once("=\"")?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        let mut value = String::new();
        let mut characters = tail.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                (_, '\n') => return None,
                (_, c) => value.push(c),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &tail[end + 1..];
        if let Some(next) = rest.strip_prefix(',') {
            rest = next;
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(labels)
}

/// Bounds and counts of the buckets ascend, and the last bucket is +Inf and equals the count.
fn check_histograms(page: &Page) -> Result<(), String> {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in &page.samples {
        if let Some(name) = sample.name.strip_suffix("_bucket") {
            let limit =
                sample.labels.iter().find(|label| label.0 == "le").ok_or("a bucket without le")?;
            let others: Vec<_> =
                sample.labels.iter().filter(|label| label.0 != "le").cloned().collect();
            let limit = limit.1.parse().map_err(|_| format!("le=\"{}\" is no number", limit.1))?;
            buckets.entry(format!("{name} {others:?}")).or_default().push((limit, sample.value));
        }
    }
    for (series, buckets) in &buckets {
        if !buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1) {
            return Err(format!("buckets out of order: {series}"));
        }
        let last = buckets.last().copied().unwrap_or_default();
        let of = |suffix: &str| {
            page.samples.iter().find(|sample| {
                format!("{} {:?}", sample.name, sample.labels)
                    == series.replacen(' ', &format!("{suffix} "), 1)
            })
        };
        let (Some(count), Some(_)) = (of("_count"), of("_sum")) else {
            return Err(format!("no count or sum: {series}"));
        };
        if last.0 != f64::INFINITY || last.1 != count.value {
            return Err(format!("the last bucket is not +Inf with the count: {series}"));
        }
    }
    Ok(())
}

//! The origin of a result, for the parts of the page that show it.

use crate::report::chart::theme;
use crate::report::comparison::View;
use crate::report::format;
use crate::result::{Status, TargetDescription};

/// A target, for the list of measured targets.
pub struct Subject {
    pub id: String,
    pub name: String,
    pub colour: String,
    pub how: String,
    pub status: String,
    pub status_class: &'static str,
    pub remarks: Vec<String>,
}

/// A cross-check with fio.
pub struct Check {
    pub test: String,
    pub target: String,
    pub ratio: String,
    pub agrees: bool,
    pub explanation: String,
}

/// The amount of work, in a few numbers.
pub fn facts(view: &View) -> Vec<(&'static str, String)> {
    let run = view.run;
    let tests: usize = run.suites.iter().map(|suite| suite.tests.len()).sum();
    let rounds =
        run.suites.iter().flat_map(|suite| &suite.tests).flat_map(|test| &test.measurements);
    let rounds = rounds.map(|measurement| measurement.samples.len()).max().unwrap_or(0);
    let verified: u64 = run
        .suites
        .iter()
        .flat_map(|suite| &suite.tests)
        .flat_map(|test| &test.measurements)
        .fold(0, |sum, measurement| sum.saturating_add(measurement.verification.bytes));
    vec![
        ("tests", format::count(tests as u64)),
        ("file systems", format::count(view.targets.len() as u64)),
        ("rounds, interleaved", format::count(rounds as u64)),
        ("noise of the machine", format::noise(run.noise.floor)),
        ("read back and verified", format::bytes(verified as f64)),
        ("time", format::duration(run.progress.seconds)),
    ]
}

/// The targets that were measured or skipped.
pub fn subjects(view: &View) -> Vec<Subject> {
    let subject = |(index, target): (usize, &TargetDescription)| {
        let (status, status_class) = match &target.status {
            Status::Ok => (String::new(), ""),
            Status::Skipped { reason } => (format!("skipped: {reason}"), "same"),
            Status::Failed { reason } => (format!("failed: {reason}"), "worse"),
        };
        let size =
            target.volume_size.map(|size| format!("volume of {}", format::bytes(size as f64)));
        let parts = [
            size.unwrap_or_default(),
            target.format.clone(),
            target.mount_options.clone(),
            target.version.clone(),
        ];
        Subject {
            id: target.id.clone(),
            name: target.name.clone(),
            colour: theme::Hue::Series(index).role(),
            how: parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · "),
            status,
            status_class,
            remarks: target.remarks.clone(),
        }
    };
    view.run.targets.iter().enumerate().map(subject).collect()
}

/// The results of fio on the same mounts.
pub fn checks(view: &View) -> Vec<Check> {
    let tests = view.run.suites.iter().flat_map(|suite| &suite.tests);
    tests
        .flat_map(|test| {
            test.measurements.iter().filter_map(move |measurement| {
                let check = measurement.cross_check.as_ref()?;
                Some(Check {
                    test: format::test(test),
                    target: measurement.target.clone(),
                    ratio: format::factor(check.ratio),
                    agrees: check.agrees,
                    explanation: check.explanation.clone().unwrap_or_default(),
                })
            })
        })
        .collect()
}

/// The origin of the figures.
pub fn provenance(view: &View) -> Vec<(&'static str, String)> {
    let provenance = &view.run.provenance;
    let backing = &provenance.backing;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let medium = [
        backing.path.clone(),
        backing.file_system.clone(),
        backing.device.clone(),
        backing.model.clone().unwrap_or_default(),
        match backing.rotational {
            Some(true) => "says that it rotates".to_owned(),
            Some(false) => "does not rotate".to_owned(),
            None => String::new(),
        },
        backing.write_cache.as_ref().map_or_else(String::new, |cache| format!("cache {cache}")),
    ];
    vec![
        (
            "steadfast",
            format!(
                "{} {}, {} build",
                provenance.version,
                known(&provenance.commit),
                provenance.profile
            ),
        ),
        ("started", format::time(provenance.started)),
        ("host", provenance.host.clone()),
        ("system", format!("{}, {}", provenance.system, provenance.kernel)),
        (
            "processor",
            format!(
                "{}, {} in use, governor {}, virtualisation {}",
                provenance.cpu,
                provenance.cpus,
                known(&provenance.governor),
                known(&provenance.virtualisation)
            ),
        ),
        (
            "memory",
            format!(
                "{}, {} free at the start",
                format::bytes(provenance.memory as f64),
                format::bytes(provenance.memory_available as f64)
            ),
        ),
        (
            "medium",
            medium.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "),
        ),
        (
            "load",
            format!(
                "{:.2} at the start, {:.2} at the end; {} of the processor time taken by the hypervisor",
                view.run.noise.load.0,
                view.run.noise.load.1,
                format::percent(view.run.noise.stolen)
            ),
        ),
        ("seed", provenance.seed.to_string()),
    ]
}

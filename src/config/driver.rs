//! `driver` of one resource: what happens around its leases (SPEC §7).

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::argv::{argv, program_under};
use super::given::Given;
use super::reader::{Reader, inner_table};
use super::section::Section;
use super::worker::labels;
use super::{ConfigError, Origin};
use crate::model::span::{Bounds, written};
use crate::model::{AdbDevice, AdbWhich, Driver, DriverKind, Hook, HookKind, Labels};

const DRIVER: &[&str] = &[
    "kind",
    "prepare",
    "reset",
    "health",
    "timeout",
    "prepare_timeout",
    "reset_timeout",
    "health_timeout",
    "health_interval",
    "directory",
    "port",
    "serial",
    "match",
];
const ADB_ONLY: &[&str] = &["port", "serial", "match"];
const HOOKS: [HookKind; 3] = [HookKind::Prepare, HookKind::Reset, HookKind::Health];

const TIMEOUT: Duration = Duration::from_secs(60);
const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
const ADB_PORT: u16 = 5037;
const SERIAL_CHARS_MAX: usize = 128;

const fn up_to(most: Duration) -> Bounds {
    Bounds { least: Duration::from_millis(100), most }
}
/// A gateway waits five minutes for a dispatch, and in them a prepare that failed moves on once.
const PREPARE_TIMEOUT: Bounds = up_to(crate::limits::PREPARE_MAX);
const RESET_TIMEOUT: Bounds = up_to(Duration::from_secs(3600));
const HEALTH_TIMEOUT: Bounds = up_to(Duration::from_secs(5 * 60));
const ANY_TIMEOUT: Bounds = RESET_TIMEOUT;
const INTERVAL: Bounds = Bounds { least: Duration::from_secs(1), most: Duration::from_secs(3600) };
const _: () = assert!(2 * PREPARE_TIMEOUT.most.as_secs() < crate::limits::DISPATCH_BOUND.as_secs());

/// The driver that `given` says. `counted` is true for an entry that stands for several resources.
pub(super) fn read<'d>(reader: &mut Reader<'d>, given: &Given<'d>, counted: bool) -> Result<Driver, ConfigError> {
    let table = inner_table(given)
        .map_err(|_| given.refuse("must be a table, such as { kind = \"command\", reset = [\"./wipe.sh\"] }"))?;
    let mut section = Section::open(reader.document, &given.key, given.origin.clone(), Some(table), None, DRIVER)?;
    let word = section.need("kind", "write kind = \"none\", \"command\" or \"adb\"")?;
    let kind = match word.text()? {
        "none" => DriverKind::None,
        "command" => DriverKind::Command,
        "adb" => DriverKind::Adb(adb_device(reader, &mut section, &given.key, counted)?),
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(word.refuse(format!("must be \"none\", \"command\" or \"adb\", not {shown:?}")));
        }
    };
    reader.note_text(&word.key, kind.as_str(), word.origin);
    if let DriverKind::None | DriverKind::Command = kind
        && let Some(wrong) = ADB_ONLY.iter().find_map(|key| section.take(key))
    {
        return Err(wrong.refuse("is of an adb device; write kind = \"adb\", or leave it out"));
    }
    if kind == DriverKind::None {
        let others = DRIVER.iter().find_map(|key| section.take(key));
        return match others {
            None => Ok(Driver::default()),
            Some(wrong) => {
                Err(wrong
                    .refuse("needs a driver: kind = \"none\" has no hooks; write kind = \"command\", or leave it out"))
            }
        };
    }
    with_hooks(reader, section, kind)
}

/// What the kinds with hooks have in common.
fn with_hooks<'d>(reader: &mut Reader<'d>, mut section: Section<'d>, kind: DriverKind) -> Result<Driver, ConfigError> {
    let common =
        section.take("timeout").map(|given| given.duration(ANY_TIMEOUT).map(|length| (length, given))).transpose()?;
    let directory = directory(reader, &mut section)?;
    let mut driver = Driver { kind, ..Driver::default() };
    for kind in HOOKS {
        let hook = hook(reader, &mut section, kind, common.as_ref(), directory.as_deref())?;
        match kind {
            HookKind::Prepare => driver.prepare = hook,
            HookKind::Reset => driver.reset = hook,
            HookKind::Health => driver.health = hook,
        }
    }
    let hooked = HOOKS.iter().any(|kind| driver.hook(*kind).is_some());
    if driver.kind == DriverKind::Command && !hooked {
        let why = "is \"command\" without a command; write prepare, reset or health = [\"./…\"], or kind = \"none\"";
        return Err(section.refuse("kind", why.to_owned()));
    }
    match section.take("health_interval") {
        Some(given) if !driver.checks() => {
            return Err(given.refuse("there is no health check; write health = [\"./…\"] beside it, or leave it out"));
        }
        given => {
            let (interval, origin) = match given {
                Some(given) => (given.duration(INTERVAL)?, given.origin),
                None => (HEALTH_INTERVAL, Origin::Default),
            };
            driver.health_interval = interval;
            if driver.checks() {
                reader.note_text(&section.key("health_interval"), &written(interval), origin);
            }
        }
    }
    driver.directory = directory.filter(|_| hooked);
    Ok(driver)
}

/// One hook with its own timeout, or the common one.
fn hook<'d>(
    reader: &mut Reader<'d>,
    section: &mut Section<'d>,
    kind: HookKind,
    common: Option<&(Duration, Given<'d>)>,
    directory: Option<&Path>,
) -> Result<Option<Hook>, ConfigError> {
    let (key, bounds) = match kind {
        HookKind::Prepare => ("prepare_timeout", PREPARE_TIMEOUT),
        HookKind::Reset => ("reset_timeout", RESET_TIMEOUT),
        HookKind::Health => ("health_timeout", HEALTH_TIMEOUT),
    };
    let own = section.take(key);
    let Some(given) = section.take(kind.as_str()) else {
        let lost = |own: Given<'_>| {
            own.refuse(format!("there is no {kind}; write {kind} = [\"./…\"] beside it, or leave this out"))
        };
        return own.map_or(Ok(None), |own| Err(lost(own)));
    };
    let mut argv = argv(reader, &given)?;
    program_under(directory, &mut argv);
    let (timeout, origin) = match (own, common) {
        (Some(own), _) => (own.duration(bounds)?, own.origin),
        (None, Some((length, common))) if *length > bounds.most => {
            let (length, most) = (written(*length), written(bounds.most));
            return Err(common.refuse(format!(
                "{length} is longer than {kind} may take ({most}); write {key} = \"{most}\" or less beside it"
            )));
        }
        (None, Some((length, common))) => (*length, common.origin.clone()),
        (None, None) => (TIMEOUT, Origin::Default),
    };
    reader.note_text(&section.key(key), &written(timeout), origin);
    Ok(Some(Hook { argv, timeout }))
}

/// Where the hooks run: as given, counted from the directory of the lab file, or there.
fn directory<'d>(reader: &mut Reader<'d>, section: &mut Section<'d>) -> Result<Option<PathBuf>, ConfigError> {
    let base = reader.directory();
    let Some(given) = section.take("directory") else { return Ok(base) };
    let text = given.text()?;
    if text.is_empty() || text.contains('\0') || text.chars().count() > super::argv::CHARS_MAX {
        return Err(given.refuse("is no directory; write a path, or leave it out for the directory of the lab file"));
    }
    let named = Path::new(text).strip_prefix(".").unwrap_or(Path::new(text));
    let directory = base.map_or_else(|| named.to_owned(), |base| base.join(named));
    reader.note_text(&given.key, &directory.to_string_lossy(), given.origin);
    Ok(Some(directory))
}

fn adb_device<'d>(
    reader: &mut Reader<'d>,
    section: &mut Section<'d>,
    path: &str,
    counted: bool,
) -> Result<AdbDevice, ConfigError> {
    let (port, origin) = match section.take("port") {
        Some(given) => (given.whole(1..=u32::from(u16::MAX))? as u16, given.origin),
        None => (ADB_PORT, Origin::Default),
    };
    reader.note(section.key("port"), port.to_string(), origin);
    let which = match (section.take("serial"), section.take("match")) {
        (Some(_), Some(given)) => {
            return Err(given.refuse(format!("{path}.serial names the device already; leave one of them out")));
        }
        (None, None) => {
            let why = "is missing; write serial = \"…\" for one device, or match = { model = \"…\" } for what is \
                       plugged in";
            return Err(section.refuse("serial", why.to_owned()));
        }
        (Some(given), None) if counted => {
            return Err(given.refuse("is of one device, and count stands for several resources; write match = { … }"));
        }
        (Some(given), None) => AdbWhich::Serial(serial(reader, &given)?),
        (None, Some(given)) => {
            let labels: Labels = labels(reader, &given)?;
            AdbWhich::Match(labels)
        }
    };
    Ok(AdbDevice { port, which })
}

fn serial<'d>(reader: &mut Reader<'d>, given: &Given<'d>) -> Result<String, ConfigError> {
    let text = given.text()?;
    let fits = (1..=SERIAL_CHARS_MAX).contains(&text.chars().count());
    if !fits || text.contains(char::is_control) || text.trim() != text {
        let shown: String = text.chars().take(40).collect();
        return Err(given.refuse(format!(
            "{shown:?} is no serial; write what `adb devices` shows, 1 to {SERIAL_CHARS_MAX} characters without spaces \
             around"
        )));
    }
    reader.note_text(&given.key, text, given.origin.clone());
    Ok(text.to_owned())
}

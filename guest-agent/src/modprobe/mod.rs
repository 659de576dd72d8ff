//! The kernel's module helper, for images without kmod: the agent's binary under the name `modprobe` on the
//! module disk. Called by the kernel as `modprobe -q -- NAME` and by programs as `modprobe NAME [-q]`.

pub mod glob;
pub mod load;
mod tables;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::tables::Tables;
use crate::boot::modules::kernel_version;

/// Where the kernel is told what its helper is: beside the tables, in a folder that the agent holds open.
const HELPER_SETTING: &str = "/proc/sys/kernel/modprobe";

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    names: Vec<String>,
    parameters: String,
    quiet: bool,
    dry_run: bool,
}

/// Runs the helper with the arguments after its name.
pub fn main(arguments: &[String]) -> ExitCode {
    let request = match parse(arguments) {
        Ok(request) => request,
        Err(reason) => {
            eprintln!("modprobe: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    for name in &request.names {
        if let Err(reason) = load_by_name(name, &request) {
            failed = true;
            if !request.quiet {
                eprintln!("modprobe: {name}: {reason}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Loads modules for others than the kernel. What cannot be loaded is missed by who needs it.
pub fn load_all(names: &[&str]) {
    if let Ok(folder) = find_folder() {
        load_from(&folder, names);
    }
}

/// The same from a folder of module files and tables, which are read once.
pub fn load_from(folder: &Path, names: &[&str]) {
    let Ok(tables) = Tables::read(folder) else { return };
    for module in names.iter().flat_map(|name| tables.find(name)) {
        let _ = load_with_dependencies(&tables, &module, &Request::default());
    }
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    let mut all = false;
    let mut options_over = false;
    for argument in arguments {
        match argument.as_str() {
            "--" if !options_over => options_over = true,
            "-q" | "--quiet" if !options_over => request.quiet = true,
            "-a" | "--all" if !options_over => all = true,
            "-n" | "--dry-run" | "--show" if !options_over => request.dry_run = true,
            // Log to syslog, use the blacklist, be verbose: nothing to do here.
            "-s" | "--syslog" | "-b" | "--use-blacklist" | "-v" | "--verbose" if !options_over => {}
            option if option.starts_with('-') && !options_over => {
                return Err(format!("option {option} is not supported: this helper only loads modules"));
            }
            name if request.names.is_empty() || all => request.names.push(name.to_string()),
            parameter => {
                if !request.parameters.is_empty() {
                    request.parameters.push(' ');
                }
                request.parameters.push_str(parameter);
            }
        }
    }
    if request.names.is_empty() { Err("no module was named".to_string()) } else { Ok(request) }
}

fn load_by_name(name: &str, request: &Request) -> Result<(), String> {
    let tables =
        Tables::read(&find_folder()?).map_err(|error| format!("cannot read the module tables: {error}"))?;
    if tables.is_builtin(name) {
        return Ok(());
    }
    let modules = tables.find(name);
    if modules.is_empty() {
        return Err(format!("there is no such module for kernel {}", kernel_version().unwrap_or_default()));
    }
    let mut last_error = None;
    let mut loaded = false;
    for module in modules {
        match load_with_dependencies(&tables, &module, request) {
            Ok(()) => loaded = true,
            Err(reason) => last_error = Some(reason),
        }
    }
    // Of several modules behind one alias, one that fits is enough.
    match last_error {
        Some(reason) if !loaded => Err(reason),
        _ => Ok(()),
    }
}

fn load_with_dependencies(tables: &Tables, module: &str, request: &Request) -> Result<(), String> {
    for path in tables.load_order(module) {
        if request.dry_run {
            println!("insmod {}", path.display());
            continue;
        }
        let is_wanted = tables::module_name(&path.to_string_lossy()) == module;
        let parameters = if is_wanted { request.parameters.as_str() } else { "" };
        load::load_file(&tables.folder().join(&path), parameters)
            .map_err(|error| format!("cannot load {}: {error}", path.display()))?;
    }
    Ok(())
}

fn find_folder() -> Result<PathBuf, String> {
    let helper = std::fs::read_to_string(HELPER_SETTING).unwrap_or_default();
    match Path::new(helper.trim()).parent() {
        Some(folder) if folder.join("modules.dep").exists() => return Ok(folder.to_path_buf()),
        _ => {}
    }
    let version = kernel_version().map_err(|error| format!("cannot read the kernel's version: {error}"))?;
    Ok(PathBuf::from("/lib/modules").join(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &str) -> Result<Request, String> {
        parse(&words.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn both_forms_of_callers() {
        let kernel = parse_words("-q -- net-pf-16-proto-12").unwrap();
        assert_eq!((kernel.names, kernel.quiet), (vec!["net-pf-16-proto-12".to_string()], true));
        let iptables = parse_words("ip_tables -q").unwrap();
        assert_eq!((iptables.names, iptables.quiet), (vec!["ip_tables".to_string()], true));
    }

    #[test]
    fn parameters_follow_the_name() {
        let request = parse_words("dummy numdummies=2 debug=1").unwrap();
        assert_eq!(request.parameters, "numdummies=2 debug=1");
        assert_eq!(parse_words("-a one two").unwrap().names.len(), 2);
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        assert!(parse_words("-r dummy").is_err());
        assert!(parse_words("").is_err());
        assert!(parse_words("-q --").is_err());
    }
}

//! Names of error numbers, for people.

/// `EAGAIN` for 11, as Linux numbers them; `errno 999` for one that is not known.
#[must_use]
pub fn errno_name(errno: i32) -> String {
    const NAMES: [&str; 40] = [
        "",
        "PERM",
        "NOENT",
        "SRCH",
        "INTR",
        "IO",
        "NXIO",
        "2BIG",
        "NOEXEC",
        "BADF",
        "CHILD",
        "AGAIN",
        "NOMEM",
        "ACCES",
        "FAULT",
        "NOTBLK",
        "BUSY",
        "EXIST",
        "XDEV",
        "NODEV",
        "NOTDIR",
        "ISDIR",
        "INVAL",
        "NFILE",
        "MFILE",
        "NOTTY",
        "TXTBSY",
        "FBIG",
        "NOSPC",
        "SPIPE",
        "ROFS",
        "MLINK",
        "PIPE",
        "DOM",
        "RANGE",
        "DEADLK",
        "NAMETOOLONG",
        "NOLCK",
        "NOSYS",
        "NOTEMPTY",
    ];
    let name = match errno {
        40 => "LOOP",
        98 => "ADDRINUSE",
        107 => "NOTCONN",
        110 => "TIMEDOUT",
        116 => "STALE",
        121 => "REMOTEIO",
        122 => "DQUOT",
        _ => usize::try_from(errno).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or(""),
    };
    if name.is_empty() { format!("errno {errno}") } else { format!("E{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_kernel_names() {
        let names: Vec<String> = [1, 11, 12, 24, 28, 39, 40, 122, 0, -1, 999].map(errno_name).into();
        assert_eq!(
            names,
            [
                "EPERM",
                "EAGAIN",
                "ENOMEM",
                "EMFILE",
                "ENOSPC",
                "ENOTEMPTY",
                "ELOOP",
                "EDQUOT",
                "errno 0",
                "errno -1",
                "errno 999"
            ]
        );
    }
}

//! nginx as a plain HTTP cache: a process of its own on loopback, with a configuration and a directory of its own.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// How often is looked whether it answers, and the pause between: half a minute for what takes a moment.
const LOOKS: u32 = 6000;
const PAUSE: Duration = Duration::from_millis(5);
/// Where Debian has it, which is not on an ordinary user's search path.
const PROGRAMS: [&str; 2] = ["nginx", "/usr/sbin/nginx"];

/// A running nginx; dropped, it is ended.
pub(super) struct Nginx {
    child: Child,
    port: u16,
    dir: TempDir,
    scheme: &'static str,
}

impl Nginx {
    /// Starts it with an empty cache; none, with a word why, where it isn't installed.
    pub(super) fn start() -> Option<Self> {
        Self::start_with("http", |_| String::new())
    }

    /// The same, by TLS, with a certificate that only itself vouches for.
    pub(super) fn start_with_tls() -> Option<Self> {
        Self::start_with("https", |dir| {
            make_certificate(dir);
            format!("ssl_certificate {0}/cert.pem; ssl_certificate_key {0}/key.pem;", dir.display())
        })
    }

    fn start_with(scheme: &'static str, tls: impl Fn(&Path) -> String) -> Option<Self> {
        let Some(program) = PROGRAMS.into_iter().find(|name| Command::new(name).arg("-v").output().is_ok())
        else {
            assert!(std::env::var_os("CI").is_none(), "nginx is not installed, and CI wants it");
            eprintln!("SKIPPED: nginx is not installed");
            return None;
        };
        // A port that is free now may be taken by the time that nginx asks for it.
        (0..5).find_map(|_| Self::try_start(program, scheme, &tls)).or_else(|| panic!("nginx doesn't start"))
    }

    fn try_start(program: &str, scheme: &'static str, tls: &impl Fn(&Path) -> String) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        fs::create_dir_all(dir.path().join("root/cas")).unwrap();
        let tls = tls(dir.path());
        let listen = format!("127.0.0.1:{port}{}", if tls.is_empty() { "" } else { " ssl" });
        fs::write(dir.path().join("nginx.conf"), configuration(dir.path(), &listen, &tls)).unwrap();
        let child = Command::new(program)
            .args(["-p".as_ref(), dir.path().as_os_str(), "-c".as_ref(), "nginx.conf".as_ref()])
            .args(["-e", "error.log"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut nginx = Self { child, port, dir, scheme };
        nginx.is_up().then_some(nginx)
    }

    fn is_up(&mut self) -> bool {
        for _ in 0..LOOKS {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    pub(super) fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub(super) fn certificate(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("cert.pem")).unwrap()
    }

    /// Where a file of the cache is.
    pub(super) fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("root/cas").join(name)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It is one process, and a child of ours.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(dir: &Path, listen: &str, tls: &str) -> String {
    let dir = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/temporary;\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\npid {dir}/nginx.pid;\nevents {{}}\n\
         http {{\naccess_log off;\nclient_max_body_size 0;\n{temporary}\
         server {{\nlisten {listen};\n{tls}\nroot {dir}/root;\n\
         location /cas/ {{ dav_methods PUT; }}\n}}\n}}\n"
    )
}

fn make_certificate(dir: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .args([dir.join("key.pem").as_os_str(), "-out".as_ref(), dir.join("cert.pem").as_os_str()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

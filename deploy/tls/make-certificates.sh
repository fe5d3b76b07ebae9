#!/usr/bin/env bash
# Makes a certificate authority for one Dask cluster and a certificate for each role.
#
#     make-certificates.sh DIRECTORY [ROLE...]      roles: scheduler worker client, all by default
#
# What is there is kept (so that it can be run again for one more role) unless it expires within
# MSCAM_RENEW_DAYS (30); then that certificate is made anew, and with the authority's all of them.
# Days of validity: MSCAM_CERTIFICATE_DAYS (365), of the authority MSCAM_AUTHORITY_DAYS (1825).
# Exit codes: 0 ok, 2 wrong arguments, 1 what openssl could not do.
set -euo pipefail
umask 077

usage() {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

[ $# -ge 1 ] || usage
case $1 in -*) usage ;; esac
directory=$1
shift
[ $# -gt 0 ] || set -- scheduler worker client
for role in "$@"; do
  case $role in
    scheduler | worker | client) ;;
    *)
      echo "There is no role '$role'; allowed are scheduler, worker, client." >&2
      usage
      ;;
  esac
done
command -v openssl >/dev/null || {
  echo "openssl is not installed; it makes the certificates." >&2
  exit 1
}

days=${MSCAM_CERTIFICATE_DAYS:-365}
authority_days=${MSCAM_AUTHORITY_DAYS:-1825}
renew_days=${MSCAM_RENEW_DAYS:-30}
for number in "$days" "$authority_days" "$renew_days"; do
  case $number in
    '' | *[!0-9]*)
      echo "'$number' is no number of days." >&2
      exit 2
      ;;
  esac
done

mkdir -p "$directory"
cd "$directory"
work=$(mktemp -d .partial.XXXXXX)
trap 'rm -rf "$work"' EXIT

is_good() { # FILE: there, and valid for a while yet
  [ -s "$1" ] && openssl x509 -checkend $((renew_days * 86400)) -noout -in "$1" >/dev/null
}

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

if ! { is_good ca.pem && [ -s ca.key ]; }; then
  new_key "$work/ca.key"
  openssl req -x509 -new -sha256 -key "$work/ca.key" -days "$authority_days" \
    -subj "/CN=mscam-dask cluster authority" -out "$work/ca.pem" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign"
  mv "$work/ca.key" "$work/ca.pem" .
  rm -f scheduler.pem worker.pem client.pem
  echo "made ca.pem"
fi

for role in "$@"; do
  if is_good "$role.pem" && [ -s "$role.key" ]; then
    echo "kept $role.pem"
    continue
  fi
  # Every node of a Dask cluster both listens and connects; a client only connects.
  purposes="serverAuth,clientAuth"
  [ "$role" != client ] || purposes="clientAuth"
  new_key "$work/$role.key"
  openssl req -new -sha256 -key "$work/$role.key" -subj "/CN=mscam-dask $role" -out "$work/$role.csr"
  printf '%s\n' "basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature" \
    "extendedKeyUsage=$purposes" "subjectAltName=DNS:$role,DNS:localhost,IP:127.0.0.1" >"$work/$role.ext"
  openssl x509 -req -sha256 -in "$work/$role.csr" -CA ca.pem -CAkey ca.key -CAcreateserial \
    -CAserial "$work/serial" -days "$days" -extfile "$work/$role.ext" -out "$work/$role.pem" 2>"$work/log" || {
    cat "$work/log" >&2
    exit 1
  }
  openssl verify -CAfile ca.pem "$work/$role.pem" >/dev/null
  mv "$work/$role.key" "$work/$role.pem" .
  echo "made $role.pem"
done

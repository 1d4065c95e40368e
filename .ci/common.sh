# What .ci/run and .ci/full share. To be read by them, in the checkout's root.
#
# The conformance corpus and the real models are read in place from the folder `shared` beside the checkout, or from
# $NNHAL_SHARED. Without them the tests that need them would skip, so the scripts refuse to run; set
# NNHAL_WITHOUT_SHARED=1 to run the rest all the same.
export NNHAL_SHARED="${NNHAL_SHARED:-$(dirname "$PWD")/shared}"
export CARGO_TERM_COLOR=never
corpus="$NNHAL_SHARED/conformance"

step() {
    printf '\n== %s (%ss)\n' "$*" "$SECONDS"
}

install_packages() {
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Installs the packages of programs that are not there: pairs of a program and its package.
install_missing() {
    local missing=()
    while [ $# -gt 0 ]; do
        command -v "$1" >/dev/null || missing+=("$2")
        shift 2
    done
    if [ ${#missing[@]} -gt 0 ]; then
        install_packages "${missing[@]}"
    fi
}

expect_shared() {
    if [ ! -d "$corpus" ] && [ -z "${NNHAL_WITHOUT_SHARED:-}" ]; then
        echo "no conformance corpus at $corpus; see the head of .ci/common.sh" >&2
        exit 1
    fi
}

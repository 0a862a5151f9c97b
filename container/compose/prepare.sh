#!/bin/sh
# Makes what docker-compose.yaml needs and no repository may have: .env with passwords, and the folder of secrets with
# tokens of the admin API and the dashboard, a salt secret and a keys file with one tenant and its key. What is there already
# stays as it is.
set -eu
cd "$(dirname "$0")/../.."

random() {
    od -An -tx1 -N24 /dev/urandom | tr -d ' \n'
}

umask 077
if ! test -e .env; then
    while IFS= read -r line; do
        case $line in
            [A-Z]*=) printf '%s%s\n' "$line" "$(random)" ;;
            *) printf '%s\n' "$line" ;;
        esac
    done < .env.example > .env
fi
folder=container/compose/secrets
# The gateway's user in the container is nobody of this machine: others may read the files, but come no further than the folder
# above lets them.
mkdir -p "$folder"
chmod 0755 "$folder"
umask 022
for name in admin-token ui-token salt-secret; do
    test -e "$folder/$name" || random > "$folder/$name"
done
if ! test -e "$folder/keys.yaml"; then
    key=pg-$(random)
    hash=$(printf %s "$key" | sha256sum | cut -d ' ' -f 1)
    cat > "$folder/keys.yaml" <<END
tenants:
  - id: first
    keys:
      - {id: first-1, sha256: $hash, prefix: $(printf %.8s "$key")}
END
    echo "key of the tenant first, shown only now: $key"
fi
echo "ready: docker compose --profile simulated up --build"
echo "with your own engines, once they are in container/compose/prefixgate.yaml: docker compose up --build"

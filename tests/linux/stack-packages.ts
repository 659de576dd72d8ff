/** The packages of the database and web stack: a sandbox's image in one test, the content of Docker's images in another. */
export const stackPackages = [
  'postgresql',
  'nginx-light',
  'python3',
  'python3-psycopg2',
  'busybox-static',
  'iputils-ping',
  'sudo',
] as const;

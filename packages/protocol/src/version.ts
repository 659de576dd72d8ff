/** The version that all parts of the product carry and report. */

/** Version of this build. */
export const productVersion = '0.1.0';

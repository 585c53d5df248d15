// Lets TypeScript accept imports of style sheets, which the bundler handles.

declare module "*.css";

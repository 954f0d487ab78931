C     GEOM traces events through ten planes, 10 cm apart: unformatted records
C     from unit 11, and to unit 10 a line for each hit, formatted.
      PROGRAM GEOM
      INTEGER MAXTR, NPLANE
      PARAMETER (MAXTR = 12, NPLANE = 10)
      INTEGER IEV, NTR, ITR, IPL, K, IOS, NEV, NHIT
      REAL VERTEX(3), TRACK(4, MAXTR), X, Y, Z, STEP
      LOGICAL THERE
      INQUIRE (FILE = 'fort.11', EXIST = THERE)
      IF (.NOT. THERE) STOP 'there is no fort.11'
      NEV = 0
      NHIT = 0
   10 READ (11, IOSTAT = IOS) IEV, NTR, VERTEX, ((TRACK(K, ITR),
     +      K = 1, 4), ITR = 1, NTR)
      IF (IOS .NE. 0) GO TO 40
      NEV = NEV + 1
      WRITE (10, '(A, 2I8)') 'EVENT', IEV, NTR
      DO 30 ITR = 1, NTR
         IF (TRACK(4, ITR) .LT. 0.1) GO TO 30
         DO 20 IPL = 1, NPLANE
            Z = 10.0 * IPL
            STEP = (Z - VERTEX(3)) / TRACK(4, ITR)
            X = VERTEX(1) + STEP * TRACK(2, ITR)
            Y = VERTEX(2) + STEP * TRACK(3, ITR)
            IF (ABS(X) .GT. 50.0 .OR. ABS(Y) .GT. 50.0) GO TO 30
            NHIT = NHIT + 1
            WRITE (10, '(2I4, 3F9.3)') ITR, IPL, X, Y, TRACK(1, ITR)
   20    CONTINUE
   30 CONTINUE
      GO TO 10
   40 CLOSE (10)
      WRITE (*, '(I8, A, I9, A)') NEV, ' events traced,', NHIT, ' hits'
      END
